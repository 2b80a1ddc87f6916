print("The Swift of the guides. There is nothing to run.")
