print("salvor-bench")
