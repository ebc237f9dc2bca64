"""What whole measured steps teach: harnesses around the priced operators, and a user's few timings."""
