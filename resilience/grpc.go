package resilience

// GRPC is the status of a gRPC answer; the zero value is an answer that is not gRPC, or has no status yet.
type GRPC uint8

// The statuses, one above their numbers on the wire.
const (
	NotGRPC GRPC = iota
	GRPCOK
	GRPCCancelled
	GRPCUnknown
	GRPCInvalidArgument
	GRPCDeadlineExceeded
	GRPCNotFound
	GRPCAlreadyExists
	GRPCPermissionDenied
	GRPCResourceExhausted
	GRPCFailedPrecondition
	GRPCAborted
	GRPCOutOfRange
	GRPCUnimplemented
	GRPCInternal
	GRPCUnavailable
	GRPCDataLoss
	GRPCUnauthenticated
	GRPCInvalid  // a status that is none of these
	GRPCStatuses // how many there are
)

// String returns the name that operators see and write; empty for NotGRPC.
func (g GRPC) String() string {
	if g >= GRPCStatuses {
		return "invalid"
	}
	return [...]string{
		"", "ok", "cancelled", "unknown", "invalid_argument", "deadline_exceeded", "not_found", "already_exists",
		"permission_denied", "resource_exhausted", "failed_precondition", "aborted", "out_of_range", "unimplemented",
		"internal", "unavailable", "data_loss", "unauthenticated", "invalid",
	}[g]
}

// ParseGRPC reads the value of a grpc-status field: a number without sign or leading zeros.
func ParseGRPC(s string) GRPC {
	switch {
	case len(s) == 1 && s[0] >= '0' && s[0] <= '9':
		return GRPC(s[0]-'0') + GRPCOK
	case len(s) == 2 && s[0] == '1' && s[1] >= '0' && s[1] <= '6':
		return GRPC(s[1]-'0') + 10 + GRPCOK
	}
	return GRPCInvalid
}

// failed reports whether the status says that the endpoint is at fault.
func (g GRPC) failed() bool {
	switch g {
	case GRPCUnknown, GRPCDeadlineExceeded, GRPCResourceExhausted, GRPCInternal, GRPCUnavailable:
		return true
	}
	return false
}

// GRPCNamed returns the status of a failure by its name, such as unavailable.
func GRPCNamed(name string) (GRPC, bool) {
	for g := GRPCCancelled; g < GRPCInvalid; g++ {
		if g.String() == name {
			return g, true
		}
	}
	return NotGRPC, false
}
