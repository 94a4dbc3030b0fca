module gauntlet/escape

go 1.22
