"""What a copy of a live kernel needs: a look at what cannot be copied, the fork, and what is renewed in the copy."""
