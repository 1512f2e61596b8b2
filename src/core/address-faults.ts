/**
 * What can be wrong with an address, and how to mend it: code -> what is wrong, what to do. No text repeats a part of the
 * address, since what stands in the wrong place may be the password.
 */
export const ADDRESS_FAULTS = {
  empty: ['There is no address.', 'Write it as https://user:password@host:port/database.'],
  too_long: [
    'The address is longer than 4096 characters.',
    'Look whether something else was pasted with it.',
  ],
  scheme: [
    'The address does not begin with http:// or https://.',
    'Write https:// in front of it, or http:// for a server that has no certificate.',
  ],
  mobile_http: [
    'Phones and tablets do not connect by http: iOS and Android demand TLS.',
    'Write https://, with the port on which the server or the proxy before it speaks TLS.',
  ],
  credentials: [
    'The user name or the password holds a character that cannot stand there as it is.',
    'Percent-encode both: @ is %40, : is %3A, / is %2F, % is %25, # is %23, ? is %3F, a space is %20.',
  ],
  percent: [
    'A % in the user name or the password is not followed by the two digits of a character in UTF-8.',
    'Write a % that is meant as such as %25.',
  ],
  username: ['There is no user name before the password.', 'Write user:password before the @.'],
  username_colon: [
    'The user name holds a colon, which HTTP cannot tell from the start of the password.',
    'Choose an account whose name has none.',
  ],
  password: ['There is no password behind the user name.', 'Write user:password before the @.'],
  control: [
    'The user name or the password holds a control character, which HTTP does not carry.',
    'Leave it out, or choose another password.',
  ],
  host_missing: ['There is no host.', "Write the server's name or IP address before the port."],
  host: [
    'The host is neither a name nor an IP address.',
    'Write a name such as notes.example.com, or an address such as 192.168.1.10.',
  ],
  host_brackets: [
    'An IPv6 address does not stand in brackets by itself.',
    'Write it in brackets, and the port behind them: [2001:db8::1]:5984.',
  ],
  port_missing: [
    'There is no port.',
    'Write it behind the host, also where it is the usual one: :443 for https, :80 for http, :5984 for settee itself.',
  ],
  port: [
    'The port is no number from 1 to 65535.',
    'Write digits alone behind the colon, such as :443 or :5984.',
  ],
  database_missing: ['There is no database.', 'Write its name behind the port: /my-notes.'],
  database_slash: ['There is a slash behind the database.', 'Leave the last slash out.'],
  path: [
    'More than one name stands behind the port.',
    "Name one database; a slash that belongs to a database's name is written %2F.",
  ],
  database: [
    'No database can have this name.',
    'It begins with a small letter; small letters, digits and any of _ $ ( ) + - / may follow, and a slash is written %2F.',
  ],
  query: ['A ? or # stands behind the database.', 'Leave it out with all that follows.'],
} as const

export type AddressFaultCode = keyof typeof ADDRESS_FAULTS
