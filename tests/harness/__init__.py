"""What tests stand on: workers, servers, rows, waits. No test is in here."""
