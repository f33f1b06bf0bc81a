from users_folder import here as here
