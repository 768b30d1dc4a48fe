package identity

// CheckRedirect is the rule of the default client.
var CheckRedirect = checkRedirect
