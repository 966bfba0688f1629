"""The pages of people and teams: parse, call one service, render. Each works without JavaScript."""
