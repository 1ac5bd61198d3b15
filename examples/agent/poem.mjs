// What the agent works on. The empty line is what its first program does not expect.
export const POEM = `the harbour keeps what it is given
and lends it to nobody

a ship may stay for a minute
or until the lighthouse forgets it
`;
