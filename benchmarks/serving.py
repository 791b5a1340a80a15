if __name__ == "__main__":
    import start

    start.run("serving")
