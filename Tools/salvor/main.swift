print("salvor")
