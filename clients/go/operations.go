package klamm

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"os"
	"strconv"
)

// About is a server and its addresses.
type About struct {
	Version   string            `json:"version"`
	Bootstrap string            `json:"bootstrap"`
	Listeners map[string]string `json:"listeners"`
}

// About returns the version and the addresses of the server.
func (c *Client) About() About { return call[About](c, "GET", "/", nil) }

// Openapi returns the description of the control API, by OpenAPI 3.1.
func (c *Client) Openapi() map[string]any {
	return call[map[string]any](c, "GET", "/openapi.json", nil)
}

// Reset deletes all topics and the groups without members, removes all faults, and drops the recorded requests.
func (c *Client) Reset() { call[struct{}](c, "POST", "/reset", nil) }

// WallTime is the time of the server, in milliseconds since 1970.
type WallTime struct {
	WallMs int64 `json:"wall_ms"`
}

// AdvanceMs moves the server's time forward.
func (c *Client) AdvanceMs(ms float64) WallTime {
	return call[WallTime](c, "POST", "/time", map[string]any{"advance_ms": ms})
}

// ---- topics and records

// TopicOptions may be left out: a topic has a random name and one partition.
type TopicOptions struct {
	Name       string         `json:"name,omitempty"`
	Partitions int            `json:"partitions,omitempty"`
	Configs    map[string]any `json:"configs,omitempty"`
}

// Topics returns the topics, each with its number of partitions.
func (c *Client) Topics() map[string]int { return call[map[string]int](c, "GET", "/topics", nil) }

// CreateTopic creates a topic and returns its name.
func (c *Client) CreateTopic(options ...TopicOptions) string {
	return call[struct{ Name string }](c, "POST", "/topics", only(options)).Name
}

// DeleteTopic deletes a topic.
func (c *Client) DeleteTopic(topic string) { call[struct{}](c, "DELETE", path("topics", topic), nil) }

// Header is a header of a record.
type Header struct {
	Name  string
	Value []byte
}

// UnmarshalJSON reads a pair of name and value.
func (h *Header) UnmarshalJSON(content []byte) error {
	return json.Unmarshal(content, &[]any{&h.Name, &h.Value})
}

// MarshalJSON writes a pair of name and value.
func (h Header) MarshalJSON() ([]byte, error) { return json.Marshal([]any{h.Name, h.Value}) }

// ProduceOptions may be left out.
type ProduceOptions struct {
	Key         []byte   `json:"key,omitempty"`
	Partition   int      `json:"partition,omitempty"`
	Headers     []Header `json:"headers,omitempty"`
	TimestampMs int64    `json:"timestamp_ms,omitempty"`
}

// Produce appends a record for each value, and returns the offset of the first. A nil value is a tombstone.
func (c *Client) Produce(topic string, options ProduceOptions, values ...[]byte) int64 {
	body := struct {
		ProduceOptions
		Values   [][]byte `json:"values"`
		Encoding string   `json:"encoding"`
	}{options, values, "base64"}
	return call[struct{ Offset int64 }](c, "POST", path("topics", topic, "records"), body).Offset
}

// ConsumeOptions may be left out: without a Count, [Client.Consume] does not wait.
type ConsumeOptions struct {
	Count     int     `json:"count,omitempty"`
	TimeoutS  float64 `json:"timeout_s,omitempty"`
	Isolation string  `json:"isolation,omitempty"`
	Partition *int    `json:"partition,omitempty"`
	Offset    *int64  `json:"offset,omitempty"`
}

// ConsumedRecord is a record of a topic.
type ConsumedRecord struct {
	Partition   int      `json:"partition"`
	Offset      int64    `json:"offset"`
	TimestampMs int64    `json:"timestamp_ms"`
	Key         []byte   `json:"key"`
	Value       []byte   `json:"value"`
	Headers     []Header `json:"headers"`
}

// Consume returns the records of a topic, or Count of them as soon as they are there.
func (c *Client) Consume(topic string, options ...ConsumeOptions) []ConsumedRecord {
	query := struct {
		ConsumeOptions
		Encoding string `json:"encoding"`
	}{Encoding: "base64"}
	if len(options) > 0 {
		query.ConsumeOptions = options[0]
	}
	return call[[]ConsumedRecord](c, "GET", path("topics", topic, "records"), query)
}

// ---- groups

// Group is a group of consumers.
type Group struct {
	Name       string           `json:"name"`
	State      string           `json:"state"`
	Members    []GroupMember    `json:"members"`
	Partitions []GroupPartition `json:"partitions"`
	Lag        int64            `json:"lag"`
}

// GroupMember is a member of a group.
type GroupMember struct {
	MemberID   string              `json:"member_id"`
	ClientID   string              `json:"client_id"`
	InstanceID string              `json:"instance_id"`
	Partitions []AssignedPartition `json:"partitions"`
}

// AssignedPartition is a partition that is assigned to a member of a group.
type AssignedPartition struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
}

// GroupPartition is a partition of a group. Committed is nil where no offset has been committed.
type GroupPartition struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	Committed *int64 `json:"committed"`
	Lag       int64  `json:"lag"`
}

// GroupOptions have [Client.Group] wait: for a state, so many members, or a lag.
type GroupOptions struct {
	State    string  `json:"state,omitempty"`
	Members  *int    `json:"members,omitempty"`
	Lag      *int64  `json:"lag,omitempty"`
	TimeoutS float64 `json:"timeout_s,omitempty"`
}

// Groups returns the groups, each with its state.
func (c *Client) Groups() map[string]string { return call[map[string]string](c, "GET", "/groups", nil) }

// Group returns a group, once it is as the options say.
func (c *Client) Group(group string, options ...GroupOptions) Group {
	return call[Group](c, "GET", path("groups", group), only(options))
}

// DeleteGroup deletes a group without members.
func (c *Client) DeleteGroup(group string) { call[struct{}](c, "DELETE", path("groups", group), nil) }

// ---- faults

// FaultRule says which requests get a fault. What is unset matches every request.
type FaultRule struct {
	Kind        string   `json:"kind"`
	Name        string   `json:"name,omitempty"`
	API         []string `json:"api,omitempty"`
	Topic       string   `json:"topic,omitempty"`
	Partition   *int     `json:"partition,omitempty"`
	Group       string   `json:"group,omitempty"`
	Client      string   `json:"client,omitempty"`
	Listener    string   `json:"listener,omitempty"`
	Node        *int     `json:"node,omitempty"`
	Error       string   `json:"error,omitempty"`
	DelayMs     int      `json:"delay_ms,omitempty"`
	After       int      `json:"after,omitempty"`
	Count       int      `json:"count,omitempty"`
	Probability *float64 `json:"probability,omitempty"`
}

// Fault is an active rule. Fired is how many requests got the fault.
type Fault struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"`
	Fired int    `json:"fired"`
}

// FaultOptions have [Client.Fault] wait.
type FaultOptions struct {
	Wait     int     `json:"wait,omitempty"`
	TimeoutS float64 `json:"timeout_s,omitempty"`
}

// ChaosOptions may be left out. A Seed gives the same faults again; Times multiplies the probabilities.
type ChaosOptions struct {
	Seed  int      `json:"seed"`
	Times *float64 `json:"times,omitempty"`
}

// Faults returns the active rules of faults.
func (c *Client) Faults() []Fault { return call[[]Fault](c, "GET", "/faults", nil) }

// AddFault adds a rule: requests that match it get a fault. It ends with the test.
func (c *Client) AddFault(rule FaultRule) Fault {
	return c.ending(call[Fault](c, "POST", "/faults", rule))[0]
}

// Chaos adds a fault of every kind, each at random with a small probability. They end with the test.
func (c *Client) Chaos(options ...ChaosOptions) []Fault {
	return c.ending(call[[]Fault](c, "POST", "/faults/chaos", only(options))...)
}

func (c *Client) ending(faults ...Fault) []Fault {
	for _, one := range faults {
		if c.faults != nil {
			*c.faults = append(*c.faults, one.Name)
		}
	}
	return faults
}

// Fault returns a rule; with Wait, once it has fired that many times.
func (c *Client) Fault(name string, options ...FaultOptions) Fault {
	return call[Fault](c, "GET", path("faults", name), only(options))
}

// RemoveFault removes a rule of faults.
func (c *Client) RemoveFault(name string) Fault {
	return call[Fault](c, "DELETE", path("faults", name), nil)
}

// ClearFaults removes all rules of faults.
func (c *Client) ClearFaults() { call[struct{}](c, "DELETE", "/faults", nil) }

// ---- nodes

// Node is a node of the broker.
type Node struct {
	ID        int               `json:"id"`
	Running   bool              `json:"running"`
	Epoch     int               `json:"epoch"`
	Listeners map[string]string `json:"listeners"`
	Leads     int               `json:"leads"`
}

// Coordinator is the node that coordinates a group or the transactions of an id.
type Coordinator struct {
	Node int `json:"node"`
}

// Nodes returns the nodes of the broker.
func (c *Client) Nodes() []Node { return call[[]Node](c, "GET", "/nodes", nil) }

// SetNode stops or starts a node.
func (c *Client) SetNode(node int, running bool) []Node {
	return call[[]Node](c, "POST", path("nodes", strconv.Itoa(node)), map[string]any{"running": running})
}

// Leaders returns the leader of each partition of a topic, -1 for none.
func (c *Client) Leaders(topic string) map[int]int {
	return call[map[int]int](c, "GET", path("leaders", topic), nil)
}

// MoveLeader has a node lead a partition; nil has none lead it.
func (c *Client) MoveLeader(topic string, partition int, node *int) map[int]int {
	return call[map[int]int](c, "POST", path("leaders", topic), map[string]any{"partition": partition, "node": node})
}

// Coordinator returns the node that coordinates a group, or the transactions of an id.
func (c *Client) Coordinator(key string) Coordinator {
	return call[Coordinator](c, "GET", path("coordinators", key), nil)
}

// MoveCoordinator has a node coordinate a group, or the transactions of an id.
func (c *Client) MoveCoordinator(key string, node int) Coordinator {
	return call[Coordinator](c, "POST", path("coordinators", key), map[string]any{"node": node})
}

// ---- what clients did

// RecordedRequest is a request of a client that has ended, with its answer.
type RecordedRequest struct {
	API           string         `json:"api"`
	Version       int            `json:"version"`
	ClientID      string         `json:"client_id"`
	CorrelationID int            `json:"correlation_id"`
	Listener      string         `json:"listener"`
	ConnectionID  string         `json:"connection_id"`
	Principal     string         `json:"principal"`
	EndedMs       int64          `json:"ended_ms"`
	DurationMs    float64        `json:"duration_ms"`
	Outcome       string         `json:"outcome"`
	ErrorCode     int            `json:"error_code"`
	Request       map[string]any `json:"request"`
	Response      map[string]any `json:"response"`
	Raw           []byte         `json:"raw"`
}

// RequestsOptions select an API, and have [Client.Requests] wait for Count requests.
type RequestsOptions struct {
	API      string  `json:"api,omitempty"`
	Count    int     `json:"count,omitempty"`
	TimeoutS float64 `json:"timeout_s,omitempty"`
}

// TimelineOptions may be left out.
type TimelineOptions struct {
	Title   string `json:"title,omitempty"`
	Failure string `json:"failure,omitempty"`
	Columns int    `json:"columns,omitempty"`
}

// Timeline is what happened, for a terminal and as a page. Both are empty if nothing did.
type Timeline struct {
	Text string `json:"text"`
	HTML string `json:"html"`
}

// Requests returns the requests of clients that have ended, oldest first.
func (c *Client) Requests(options ...RequestsOptions) []RecordedRequest {
	return call[[]RecordedRequest](c, "GET", "/requests", only(options))
}

// ForgetRequests drops the recorded requests; the timeline begins here.
func (c *Client) ForgetRequests() { call[struct{}](c, "DELETE", "/requests", nil) }

// Timeline returns what happened.
func (c *Client) Timeline(options ...TimelineOptions) Timeline {
	return call[Timeline](c, "GET", "/timeline", only(options))
}

// ---- users

// User is a user of the listener with TLS and SCRAM. Without a password it gets "secret".
type User struct {
	Name     string `json:"name"`
	Password string `json:"password,omitempty"`
}

// Acl is a rule of an access control list, in Kafka's words.
type Acl struct {
	Principal    string `json:"principal"`
	Host         string `json:"host"`
	Operation    string `json:"operation"`
	Permission   string `json:"permission"`
	ResourceType string `json:"resource_type"`
	Name         string `json:"name"`
	PatternType  string `json:"pattern_type"`
}

// AccessRule is what a user may do, or not: e.g. the Operation READ on the ResourceType TOPIC of the Name orders.
type AccessRule struct {
	User         string `json:"user"`
	Operation    string `json:"operation"`
	ResourceType string `json:"resource_type"`
	Name         string `json:"name"`
	Prefix       bool   `json:"prefix,omitempty"`
	Host         string `json:"host,omitempty"`
}

// AddUser makes a user, or changes its password.
func (c *Client) AddUser(user User) User { return call[User](c, "POST", "/users", user) }

// Acls returns the rules of access, all or those of a user.
func (c *Client) Acls(user ...string) []Acl { return call[[]Acl](c, "GET", "/acls", ofUser(user)) }

// Allow lets a user do something.
func (c *Client) Allow(access AccessRule) Acl { return call[Acl](c, "POST", "/acls/allow", access) }

// Deny keeps a user from something, whatever allows it.
func (c *Client) Deny(access AccessRule) Acl { return call[Acl](c, "POST", "/acls/deny", access) }

// ClearAcls takes all rules of access away, or those of a user.
func (c *Client) ClearAcls(user ...string) { call[struct{}](c, "DELETE", "/acls", ofUser(user)) }

// ClientSettings returns what a client library needs to connect, in its own words; for Go [Client.Settings] has types.
func (c *Client) ClientSettings(client string, user ...string) map[string]any {
	return call[map[string]any](c, "GET", path("client-settings", client), ofUser(user))
}

func ofUser(user []string) any {
	if len(user) == 0 {
		return nil
	}
	return map[string]string{"user": user[0]}
}

// Settings is what a client needs to connect: franz-go, kafka-go and sarama make objects of it.
type Settings struct {
	Brokers   []string `json:"brokers"`
	CAFile    string   `json:"ca_file"`
	Mechanism string   `json:"mechanism"`
	Username  string   `json:"username"`
	Password  string   `json:"password"`
}

// Settings returns what a client needs to connect, as a user of a server that is [Secure]; without one, as admin.
func (c *Client) Settings(user ...string) Settings {
	return call[Settings](c, "GET", "/client-settings/go", ofUser(user))
}

// TLS returns the configuration for the server's certificate.
func (s Settings) TLS() (*tls.Config, error) {
	content, err := os.ReadFile(s.CAFile)
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(content) {
		return nil, errors.New("klamm: " + s.CAFile + " has no certificate")
	}
	return &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}, nil
}
