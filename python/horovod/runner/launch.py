"""The command horovodrun."""

from hvdrun.command import main

run_commandline = main

__all__ = ["main", "run_commandline"]

if __name__ == "__main__":
    main()
