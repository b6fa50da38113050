/* Where static memory lies that a start does not touch. */
#ifndef STACKD_LARGE_H_
#define STACKD_LARGE_H_

/* Marks what has kilobytes and no first value. Each page that a start writes to is private memory of the process. With
 * these apart, all small variables share two or three pages. Compilers know .sbss as a section without contents. */
#define STACKD_LARGE __attribute__((section(".sbss.stackd_large")))

#endif /* STACKD_LARGE_H_ */
