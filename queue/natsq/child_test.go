package natsq_test

func serve() bool { return false }
