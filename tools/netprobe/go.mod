module gauntlet.dev/netprobe

go 1.24
