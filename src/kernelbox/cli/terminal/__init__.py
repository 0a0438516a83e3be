"""What commands write: JSON for programs, and text, colours and tables for people."""
