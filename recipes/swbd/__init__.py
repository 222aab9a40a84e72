"""What is true of Switchboard only: corpus preparation, text rules, dictionary, the embedded corpus."""
