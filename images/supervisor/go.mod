module gauntlet/supervisor

go 1.23
