"""What operators see and do: shared by the admin, the commands and the doctor."""
