module klamm.example/klamm

go 1.21
