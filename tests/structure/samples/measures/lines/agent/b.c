int a;
int b;

