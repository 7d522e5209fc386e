package lab

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
)

// reserved are the ports that this process has set aside, each with the socket
// that keeps it, until the process ends.
var reserved struct {
	sync.Mutex
	last    int
	sockets []int
}

// FreePorts sets ports aside for a lab. Nobody listens on them, and until this
// process ends the system gives none of them to an outgoing connection nor to a
// listener that lets it choose; only who asks for one by number, as the lab's
// own processes do, gets it.
func FreePorts() (Ports, error) {
	var p Ports
	reserved.Lock()
	defer reserved.Unlock()
	if reserved.last == 0 {
		reserved.last = 10_000 + os.Getpid()*97%15_000 // test binaries that run side by side seldom meet
	}
	for _, port := range []*int{&p.Front, &p.AgentCheck, &p.HTTP, &p.SPOE, &p.Heavy, &p.Fast} {
		for *port == 0 {
			reserved.last++
			if reserved.last > 32_000 {
				return p, errors.New("no free port below 32000")
			}
			err := reserve(reserved.last)
			switch {
			case err == nil:
				*port = reserved.last
			case !errors.Is(err, syscall.EADDRINUSE):
				return p, fmt.Errorf("port %d: %w", reserved.last, err)
			}
		}
	}
	return p, nil
}

// reserve binds a port without listening on it. The bind itself is exclusive: it
// fails where anybody has the port in any state, another reservation included.
// With SO_REUSEADDR set afterwards, who sets that too (Go and HAProxy do) can
// bind beside it and listen (socket(7): only a listening socket stands in the
// way), and the system still counts the port as taken.
func reserve(port int) error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	err = syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	if err == nil {
		err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	}
	if err != nil {
		_ = syscall.Close(fd)
		return err
	}
	reserved.sockets = append(reserved.sockets, fd)
	return nil
}
