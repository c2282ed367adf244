from benchmarks.python.run import main

raise SystemExit(main())
