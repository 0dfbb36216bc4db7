"""Tables, wording, errors and options that the commands share."""
