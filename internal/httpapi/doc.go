// Package httpapi speaks HTTP: readiness, metrics and status to whoever may
// reach the read-only listener, and commands to whoever may open the admin
// socket.
//
// Its invariant: a GET reads published memory and starts nothing; only the
// admin socket, whose file permissions say who may, changes anything. No answer
// carries an address, a credential or a byte that an engine sent.
package httpapi
