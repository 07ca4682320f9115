"""What a person sees on a terminal: tables, ages, colors, bars and spinners."""
