module stackd.example/go

go 1.21
