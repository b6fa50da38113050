module overlaid.example/program

go 1.21
