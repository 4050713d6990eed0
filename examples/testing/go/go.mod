module klamm.example/testing

go 1.26.0

require (
	github.com/segmentio/kafka-go v0.4.51
	github.com/twmb/franz-go v1.22.2
	klamm.example/klamm v0.1.0
)

require (
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/pierrec/lz4/v4 v4.1.33 // indirect
	github.com/twmb/franz-go/pkg/kmsg v1.15.0 // indirect
	github.com/xdg-go/pbkdf2 v1.0.0 // indirect
	github.com/xdg-go/scram v1.1.2 // indirect
	github.com/xdg-go/stringprep v1.0.4 // indirect
	golang.org/x/text v0.23.0 // indirect
)

replace klamm.example/klamm => ../../../clients/go
