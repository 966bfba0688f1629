"""The pages of users and teams: parse, call one service, render. Each works without JavaScript."""
