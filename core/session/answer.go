package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/curfewmq/curfew/core/amqp"
)

// errTryAgain answers a handover if the node does not serve the vhost now, or does not know enough of the registry yet.
var errTryAgain = errors.New("the node does not serve the vhost now")

// The answer to a handover. If it accepts, the frames of the connection follow:
//
//	0        1      3       5        7      8
//	+--------+------+-------+--------+------+--------+
//	| status | code | class | method | size | text   |
//	+--------+------+-------+--------+------+--------+
//
// All fields except the status describe the error for the client. They are 0 without one.
const answerHead = 8

// status is the first byte of an answer.
type status byte

const (
	accepted status = iota + 1
	tryAgain
	refused
)

// AppendAnswer appends the answer to a handover. nil accepts it, an [*amqp.Error] goes to the client, and any other error means that the
// front should try again.
func AppendAnswer(dst []byte, err error) []byte {
	if err == nil {
		return append(dst, byte(accepted), 0, 0, 0, 0, 0, 0, 0)
	}
	e, ok := errors.AsType[*amqp.Error](err)
	if !ok {
		return append(dst, byte(tryAgain), 0, 0, 0, 0, 0, 0, 0)
	}
	text := e.Text[:min(len(e.Text), 255)]
	dst = append(dst, byte(refused))
	dst = binary.BigEndian.AppendUint16(dst, e.Code)
	dst = binary.BigEndian.AppendUint16(dst, e.Class)
	dst = binary.BigEndian.AppendUint16(dst, e.Method)
	return append(append(dst, byte(len(text))), text...)
}

// ReadAnswer reads the answer to a handover, and not a byte more. It returns nil if the handover is accepted, errTryAgain, or the
// [*amqp.Error] for the client. Other errors come from the stream.
func ReadAnswer(r io.Reader) error {
	var head [answerHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return fmt.Errorf("answer to a handover: %w", err)
	}
	text := make([]byte, head[7])
	if _, err := io.ReadFull(r, text); err != nil {
		return fmt.Errorf("answer to a handover: %w", err)
	}
	switch status(head[0]) {
	case accepted:
		return nil
	case tryAgain:
		return errTryAgain
	case refused:
		e := amqp.Errorf(binary.BigEndian.Uint16(head[1:]), "%s", text)
		return e.In(binary.BigEndian.Uint16(head[3:]), binary.BigEndian.Uint16(head[5:]))
	}
	return fmt.Errorf("answer to a handover: status %d, expected %d to %d", head[0], accepted, refused)
}
