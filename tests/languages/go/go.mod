module stackd.example/victims

go 1.21
