#include "textflag.h"

// The fields of `question` in threads.go.
#define asked_number 0
#define done_number 8
#define saved_registers 16
#define stack_result 152
#define to_base 160
#define from_base 176
#define from_bytes 184
#define question_bytes 65728
#define question_count 8

#define context_registers 40
#define context_rsp 160

#define siginfo_code 8
#define siginfo_pid 16
#define siginfo_value 24
#define from_queue -1

#define registers 17
#define process_vm_readv 310

// Called by the kernel on the thread's signal stack: siginfo in SI, context in DX. Every register is the kernel's to
// restore. It writes to the question that it was sent with, if that still waits for it, and to nothing else; it has no frame
// and calls nothing. The goroutine's stack is read by the kernel, which gives an error where any other reader would fault.
TEXT ·dumpHandler(SB),NOSPLIT|NOFRAME,$0-0
	CLD
	CMPL siginfo_code(SI), $from_queue
	JNE  done
	MOVL siginfo_pid(SI), R13
	CMPL R13, ·ownPid(SB)
	JNE  done
	MOVQ siginfo_value(SI), AX
	MOVBLZX AX, BX
	CMPL BX, $question_count
	JAE  done
	IMULQ $question_bytes, BX
	ADDQ ·questions(SB), BX
	MOVQ AX, R12
	XORL CX, CX
	LOCK
	CMPXCHGQ CX, asked_number(BX)
	JNE  done

	LEAQ context_registers(DX), SI
	LEAQ saved_registers(BX), DI
	MOVL $registers, CX
	REP; MOVSQ

	// The goroutine whose stack this thread is on: g.stack.lo and g.stack.hi are its first words.
	MOVQ $0, stack_result(BX)
	MOVQ TLS, CX
	MOVQ 0(CX)(TLS*1), CX
	TESTQ CX, CX
	JZ   answered
	MOVQ context_rsp(DX), SI
	CMPQ SI, 0(CX)
	JB   answered
	MOVQ 8(CX), CX
	SUBQ SI, CX
	JBE  answered
	MOVQ SI, from_base(BX)
	// As much as there is room for stands there.
	CMPQ CX, from_bytes(BX)
	JAE  read
	MOVQ CX, from_bytes(BX)
read:
	MOVL R13, DI
	LEAQ to_base(BX), SI
	MOVL $1, DX
	LEAQ from_base(BX), R10
	MOVL $1, R8
	XORL R9, R9
	MOVL $process_vm_readv, AX
	SYSCALL
	MOVQ AX, stack_result(BX)

answered:
	MOVQ R12, done_number(BX)
done:
	RET

// Ends a signal handler, as the kernel asks of a program that sets one.
TEXT ·returnFromHandler(SB),NOSPLIT|NOFRAME,$0-0
	MOVL $15, AX
	SYSCALL
	INT $3

// func handlerAddresses() (handler, restorer uintptr)
TEXT ·handlerAddresses(SB),NOSPLIT,$0-16
	LEAQ ·dumpHandler(SB), AX
	MOVQ AX, handler+0(FP)
	LEAQ ·returnFromHandler(SB), AX
	MOVQ AX, restorer+8(FP)
	RET
