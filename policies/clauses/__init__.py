"""The checks that code makes of a draft, a function for each clause of the constitution."""
