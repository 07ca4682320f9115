"""What Kelpie tells its operators about itself."""
