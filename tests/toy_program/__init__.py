"""A whole program on the platform, as small as one can be: which of three numbers of the marked step is the largest?"""
