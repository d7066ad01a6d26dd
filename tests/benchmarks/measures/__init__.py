"""What is measured of this queue; and the app that declares the tasks for it."""
