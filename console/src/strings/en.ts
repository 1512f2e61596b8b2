/**
 * All texts of the console, in English. A translation is another object of the type {@link Strings}. Texts with numbers are
 * functions, since languages count in different ways.
 */
import { count } from './format.ts'

export const en = {
  common: {
    add: 'Add',
    answerCut:
      'The connection ended in the middle of the answer. What was begun may or may not have been done: look before you try again.',
    cancel: 'Cancel',
    cannotUndo: 'This cannot be undone.',
    close: 'Close',
    copied: 'Copied',
    copy: (what: string) => `Copy ${what}`,
    delete: 'Delete',
    failed: 'That did not work',
    hide: (what: string) => `Hide ${what}`,
    hidePassword: 'Hide the password',
    lineTooLong: 'A line of the answer is longer than the page can show.',
    loading: 'Loading…',
    more: 'Show more',
    notCopied: 'The browser did not copy it. Select the text and copy it yourself.',
    password: 'Password',
    requestId: 'Request',
    save: 'Save',
    show: (what: string) => `Show ${what}`,
    showPassword: 'Show the password',
    tryAgain: 'Try again',
    typeName: (name: string) => `Type “${name}” to confirm`,
    undo: 'To undo it:',
    unreachable:
      'The server did not answer. It may have stopped, or the network may be down. Nothing you entered is lost.',
  },
  shell: {
    brand: 'settee',
    skip: 'Skip to the content',
    menu: 'Menu',
    sidebar: 'Console',
    navigation: 'Pages',
    signedInAs: (name: string) => `Signed in as ${name}`,
    isAdmin: 'Server admin',
    isAccount: 'Account',
    signOut: 'Sign out',
    windowTitle: (title: string) => `${title} · settee`,
    notFound: 'There is no such page',
    notFoundHelp: 'The address may be misspelled, or the page may need a server admin.',
    toOverview: 'Go to the overview',
    screenFailed: 'This page could not be shown',
    screenNotLoaded:
      'A part of the console could not be loaded. The server may have been updated: reload the page.',
    reload: 'Reload the page',
    unreachableTitle: 'The server does not answer',
    unreachableHelp: 'Check that settee is running, and that this device is connected to it.',
    screens: {
      overview: 'Overview',
      databases: 'Databases',
      devices: 'Devices',
      replication: 'Replication',
      doctor: 'Doctor',
      hosted: 'Accounts',
      settings: 'Settings',
    },
  },
  signIn: {
    title: 'Sign in',
    lead: (host: string) => `to settee on ${host}`,
    name: 'Name',
    submit: 'Sign in',
    wrong: 'The name or the password is wrong.',
    needBoth: 'Enter your name and your password.',
    plainHttp:
      'This connection is not encrypted: others in the network could read your password. Use https where you can.',
    help: 'Sign in as the server admin, or with an account of this server. A device token does not open the console.',
    again: 'Sign in again',
    againLead: 'Your session has ended. Sign in to continue where you were; nothing you entered is lost.',
    other: 'Sign in as someone else',
  },
  firstAdmin: {
    title: 'Make the admin',
    lead: 'This server has no admin yet, so everyone who can reach it may read, change and delete everything. Choose the name and password of its admin.',
    name: 'Admin’s name',
    password: 'Password',
    repeat: 'Password again',
    hint: 'At least 8 characters. A few words that you remember are better than a short riddle.',
    submit: 'Make the admin',
    tooShort: 'The password needs at least 8 characters.',
    differs: 'The two passwords differ.',
    badName: 'A name needs at least one character, and neither a colon nor a leading underscore.',
    next: 'Afterwards you are signed in. Note apps should not use this account: add a device for each of them.',
  },
  overview: {
    title: 'Overview',
  },
  doctor: {
    title: 'Doctor',
  },
  databases: {
    title: 'Databases',
    back: 'All databases',
    tabs: {
      label: 'Parts of the database',
      summary: 'Summary',
      documents: 'Documents',
      queries: 'Queries',
      timeMachine: 'Time machine',
      deleted: 'Deleted',
      access: 'Access',
    },
  },
  documents: {
    title: 'Documents',
  },
  queries: {
    title: 'Queries',
  },
  devices: {
    title: 'Devices',
  },
  replication: {
    title: 'Replication',
  },
  hosted: {
    title: 'Accounts',
  },
  settings: {
    title: 'Settings',
  },
  codeEditor: {
    isPlain: 'The editor could not be loaded; this is a plain text field.',
    goTo: 'Go there',
    repeated: (name: string, line: number) =>
      `Line ${line}: “${name}” occurs twice in one object. The last one counts.`,
    fault: (line: number, column: number, problem: string, found: string) =>
      `Line ${line}, column ${column}: ${problem}${found === '' ? '.' : `, not “${found}”.`}`,
    problems: {
      value: 'a value is needed here',
      name: 'a name in double quotes is needed here',
      'name or end': 'a name in double quotes or a closing brace is needed here',
      colon: 'a colon is needed after the name',
      'comma or brace': 'a comma or a closing brace is needed here',
      'comma or bracket': 'a comma or a closing bracket is needed here',
      'nothing more': 'the value has ended, so nothing may follow',
      'unclosed string': 'the text that begins here has no closing quote in its line',
      escape: 'a backslash must be followed by one of " \\ / b f n r t, or by u and four hexadecimal digits',
      'control character':
        'a tab or another control character in a text is written with a backslash, such as \\t',
      number: 'a number is needed here, such as 12, -0.5 or 1e9',
      word: 'a value is needed here; a text needs double quotes, and the only words are true, false and null',
      'trailing comma': 'a name or a value must follow the comma',
      'too deep': 'objects and arrays may be nested 512 deep',
      'no object': 'a document is an object, which begins and ends with braces',
    },
  },
  words: {
    documents: (value: number) => count(value, 'document', 'documents'),
    databases: (value: number) => count(value, 'database', 'databases'),
    changes: (value: number) => count(value, 'change', 'changes'),
  },
}

export type Strings = typeof en
