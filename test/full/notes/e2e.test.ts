/**
 * examples/notes from end to end: the built app in Debian's Chromium, against listening servers. `NOTES_ONLY=pattern`
 * runs the cases whose names it matches; with `PATIENCE=5000`, a step that fails ends sooner; `NOTES_SCREENSHOTS=1`
 * keeps a picture of every screen in examples/notes/screenshots.
 */
import t, { type Test } from 'tap'
import { firstLoad } from '../../examples/notes/cases-build.ts'
import { diagnosis, failingSync, longLog } from '../../examples/notes/cases-diagnosis.ts'
import { byKeyboard, caretAndUndo, reading } from '../../examples/notes/cases-editor.ts'
import { hosted, hostedMobile } from '../../examples/notes/cases-hosted.ts'
import { looks } from '../../examples/notes/cases-looks.ts'
import { mobile } from '../../examples/notes/cases-mobile.ts'
import { changingModes, modes } from '../../examples/notes/cases-modes.ts'
import { rented } from '../../examples/notes/cases-rented.ts'
import { booksTagsPictures, conflict, twoDevices } from '../../examples/notes/cases-self-hosted.ts'
import { labels, trash } from '../../examples/notes/cases-shelves.ts'
import {
  hostileNotes,
  keyboard,
  manyNotes,
  twoWindows,
  typingOver,
  undisturbed,
  withoutStorage,
} from '../../examples/notes/cases-writing.ts'
import { openStage, type Stage } from '../../examples/notes/stage.ts'

type Cases = Readonly<Record<string, (t: Test, stage: Stage) => Promise<void>>>

/** Each with databases of its own, so that several run at once: much of their time is waiting. */
const CASES: Cases = {
  'three modes, the hosted one by default; nothing leaves the page before': modes,
  'changing the mode ends the old sync and keeps every note': changingModes,
  'two devices, offline and back, over the path that a phone shows': twoDevices,
  'a conflict is shown side by side and resolved': conflict,
  'books, tags and pictures travel': booksTagsPictures,
  'typing goes on while another edit of the note comes in, and both are kept': typingOver,
  'what comes in disturbs neither who reads nor who types': undisturbed,
  'caret and undo stay when another device edits the open note': caretAndUndo,
  'a note is begun, written and found by the keyboard alone': byKeyboard,
  'tasks are ticked, code has colours, and text and note are side by side': reading,
  'deleted notes go to the trash, which syncs': trash,
  'labels: books and tags are renamed and deleted': labels,
  'nothing of a note runs, loads, or passes for the app': hostileNotes,
  'a mode that is chosen in one window holds in all': twoWindows,
  'the menu is used by the keyboard': keyboard,
  'a browser that keeps nothing is told of': withoutStorage,
  'a mobile device syncs over https through nginx, and no picture travels': mobile,
  'each fault of a network has words of its own': diagnosis,
  'a sync that fails says why, and the log has it without credentials': failingSync,
  'all events that are kept can be seen': longLog,
  // Installed once.
  'a rented database (pouchdb-server)': rented,
}

/** These measure times, or share the account of the hosted server. */
const CASES_ALONE: Cases = {
  '3,000 notes come, are found and written': manyNotes,
  'the hosted server refuses pictures and design documents in words, and takes the rest': hosted,
  'a mobile device on the hosted server syncs by a selector': hostedMobile,
  'every screen, light and dark, wide and narrow, is accessible': looks,
  'a first visit loads less than 150 kB': firstLoad,
}

/** Cases that run at once, on two cores. */
const AT_ONCE = 3

// A machine may be four times slower, and busy.
t.setTimeout(1_200_000)

t.test('examples/notes', async (t) => {
  const stage = await openStage(t)
  const only = new RegExp(process.env.NOTES_ONLY ?? '')
  const chosen = (cases: Cases) => Object.entries(cases).filter(([name]) => only.test(name))
  await t.test('at once', { jobs: AT_ONCE }, async (t) => {
    await Promise.all(
      chosen(CASES).map(([name, run]) => t.test(name, { buffered: true }, (t) => run(t, stage))),
    )
  })
  for (const [name, run] of chosen(CASES_ALONE)) await t.test(name, (t) => run(t, stage))
})
