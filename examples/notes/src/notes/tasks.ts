/** Ticks the tasks of a note (`- [ ] …`) in its Markdown. Pure. */

/** A list item that begins with a task's box, behind any quote marks. */
const TASK = /^((?:\s|>)*(?:[-*+]|\d{1,9}[.)])\s+\[)([ xX])\](?=\s)/
const FENCE = /^(?:\s|>|[-*+]\s|\d{1,9}[.)]\s)*(`{3,}|~{3,})/

interface Task {
  /** The place of the character between the brackets. */
  readonly at: number
  readonly isDone: boolean
}

/**
 * @param shown whether each task is done, in the order in which the formatted text shows them
 * @param index of the task to change
 * @returns the text with that task changed; null if the tasks in the text are not the ones that are shown
 */
export function toggledTask(body: string, shown: readonly boolean[], index: number): string | null {
  const tasks = tasksOf(body)
  const task = tasks[index]
  const isSame = tasks.length === shown.length && tasks.every(({ isDone }, at) => isDone === shown[at])
  if (task === undefined || !isSame) return null
  return `${body.slice(0, task.at)}${task.isDone ? ' ' : 'x'}${body.slice(task.at + 1)}`
}

function tasksOf(body: string): readonly Task[] {
  const tasks: Task[] = []
  let fence = ''
  let start = 0
  for (const line of body.split('\n')) {
    const mark = FENCE.exec(line)?.[1] ?? ''
    const task = fence === '' ? TASK.exec(line) : null
    if (task !== null) tasks.push({ at: start + (task[1] ?? '').length, isDone: task[2] !== ' ' })
    if (fence === '') fence = mark
    else if (mark.startsWith(fence) && line.trim().endsWith(mark)) fence = ''
    start += line.length + 1
  }
  return tasks
}
