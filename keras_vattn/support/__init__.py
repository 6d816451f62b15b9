"""Internal functions and classes that the packages of the library share."""
