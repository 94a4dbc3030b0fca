#include "textflag.h"

// func int80(number, a1, a2, a3, a4, a5 uintptr) (result int64)
// The 32-bit system call gate, entered from 64-bit code. Pointers must lie below 4 GiB.
TEXT ·int80(SB), NOSPLIT, $0-56
	MOVQ number+0(FP), AX
	MOVQ a1+8(FP), BX
	MOVQ a2+16(FP), CX
	MOVQ a3+24(FP), DX
	MOVQ a4+32(FP), SI
	MOVQ a5+40(FP), DI
	INT  $0x80
	MOVLQSX AX, AX
	MOVQ AX, result+48(FP)
	RET
