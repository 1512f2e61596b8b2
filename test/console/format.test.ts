/** Numbers and times in the language of the browser, whatever it names. */
import t from 'tap'
// Other test files of the process use it: it is loaded before a test changes the languages.
import '../../console/src/strings/format.ts'

/** @returns the module as a browser with these languages loads it */
async function formatFor(
  languages: readonly string[],
): Promise<typeof import('../../console/src/strings/format.ts')> {
  Object.defineProperty(navigator, 'languages', { value: languages, configurable: true })
  try {
    return await import(`../../console/src/strings/format.ts?languages=${languages.join()}`)
  } finally {
    // Other test files of the process have the languages of Node.
    Reflect.deleteProperty(navigator, 'languages')
  }
}

t.test('a language that is no language tag is left out', async (t) => {
  for (const wrong of ['en-US@posix', 'C', '', 'undefined', 'de_DE', '*']) {
    const { number, exactTime, ago } = await formatFor([wrong, 'de'])
    t.equal(number(1234567), '1.234.567', wrong)
    t.match(exactTime(0), /1970/, wrong)
    t.match(ago(0, 86_400_000), 'gestern', wrong)
    t.match((await formatFor([wrong])).number(1234567), /^1.?234.?567$/, `${wrong} alone`)
  }
  t.match((await formatFor([])).number(1234567), /^1.?234.?567$/, 'none')
})
