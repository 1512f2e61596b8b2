/** Times in the user's language. */
const TIME = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit' })
const DAY = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short', year: 'numeric' })
const EXACT = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' })

/** @param time in milliseconds since 1970; today is shown with the hour, other days with the date */
export function dayOf(time: number): string {
  const isToday = new Date(time).toDateString() === new Date().toDateString()
  return (isToday ? TIME : DAY).format(time)
}

/** @returns the date and the time to the second */
export function exactly(time: number): string {
  return EXACT.format(time)
}

const NUMBER = new Intl.NumberFormat()

/** @returns "1 note", "2,000 notes" */
export function countOf(count: number, what: string): string {
  return `${NUMBER.format(count)} ${what}${count === 1 ? '' : 's'}`
}
